-- Where does the log say too little? (files by week, the worst first)
-- no rows: every file says tokens, first token and end of every chat request, and none of its records was rejected
select
    week, source_file, chat_rows, rejected_rows, rejected_ratio,
    unknown_prompt_ratio, unknown_output_ratio, unknown_ttft_ratio, unknown_e2e_ratio, unknown_session_ratio,
    greatest(unknown_prompt_ratio, unknown_output_ratio, unknown_ttft_ratio, unknown_e2e_ratio) as worst_ratio
from mart_data_quality
where coalesce(worst_ratio, 1) > 0 or rejected_rows > 0
order by coalesce(worst_ratio, 1) desc, rejected_rows desc, week asc, source_file asc
