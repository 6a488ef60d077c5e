-- One row per attempt with a length or time that cannot be: none may exist.
-- grain: source, request_id, attempt
select source, request_id, attempt, prompt_tokens, cached_prompt_tokens, output_tokens, queue_s, ttft_s, e2e_s
from fct_attempts
where
    prompt_tokens < 0 or cached_prompt_tokens < 0 or output_tokens < 0 or reasoning_tokens < 0
    or cached_prompt_tokens > prompt_tokens
    or queue_s < 0 or ttft_s < 0 or e2e_s < 0
    or isnan(queue_s) or isnan(ttft_s) or isnan(e2e_s)
