-- One row per week and log file, '(none)' for a file without usable rows: what was read, and what stayed unknown.
-- grain: week, source, source_file
select
    coalesce(quality.week, '(none)') as week,
    coalesce(files.source, quality.source) as source,
    coalesce(files.source_file, quality.source_file) as source_file,
    files.status, files.content_sha256,
    files.read_rows, files.loaded_rows, files.duplicates_rows, files.rejected_rows, files.ignored_rows,
    files.rejected_rows / nullif(files.read_rows, 0) as rejected_ratio,
    coalesce(quality.chat_rows, 0) as chat_rows,
    quality.unknown_prompt_ratio, quality.unknown_output_ratio, quality.unknown_ttft_ratio, quality.unknown_e2e_ratio,
    quality.unknown_model_ratio, quality.unknown_session_ratio, quality.assumed_origin_ratio
from dim_source_files as files
full join dist_data_quality as quality
    on files.source = quality.source and files.source_file = quality.source_file
order by coalesce(quality.week, '(none)'), coalesce(files.source, quality.source), source_file
