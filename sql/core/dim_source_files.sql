-- One row per log file that was read: what became of its records.
-- grain: source, source_file
select
    source, source_file,
    sha256 as content_sha256,
    status,
    read as read_rows,
    loaded as loaded_rows,
    duplicates as duplicates_rows,
    rejected as rejected_rows,
    ignored as ignored_rows,
    timezone('UTC', first_arrived_at) as first_arrived_at,
    timezone('UTC', last_arrived_at) as last_arrived_at
from raw_files
order by source, source_file
