-- One row per week and log file: chat rows, and how much of them the log leaves unknown.
-- grain: week, source, source_file
-- incremental: week
select
    week, source, source_file,
    count(*) as chat_rows,
    count(*) filter (where prompt_tokens is null) / count(*) as unknown_prompt_ratio,
    count(*) filter (where output_tokens is null) / count(*) as unknown_output_ratio,
    count(*) filter (where ttft_s is null) / count(*) as unknown_ttft_ratio,
    count(*) filter (where e2e_s is null) / count(*) as unknown_e2e_ratio,
    count(*) filter (where model is null) / count(*) as unknown_model_ratio,
    count(*) filter (where session_id is null) / count(*) as unknown_session_ratio,
    count(*) filter (where list_has_any(flags, ['assumed_origin', 'assumed_start', 'assumed_arrival']))
    / count(*) as assumed_origin_ratio
from stg_requests
where is_chat
group by week, source, source_file
order by week, source, source_file
