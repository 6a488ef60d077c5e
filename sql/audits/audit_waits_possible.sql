-- One row per gap that overlaps yet counts, or whose kind cannot be: none may exist.
-- grain: source, request_id
select source, request_id, kind, kind_source, wait_s, stamped_wait_s, is_overlap
from fct_tool_waits
where
    (is_overlap and wait_s > 0) or kind not in ('tool', 'user')
    or (kind = 'user' and logged_tool_wait_s is not null)
