-- One row per attempt with more cached tokens than its prompt has: none may exist.
-- grain: source, request_id, attempt
select source, request_id, attempt, prompt_tokens, cached_prompt_tokens
from fct_attempts
where cached_prompt_tokens > prompt_tokens
