-- One row per week, log file and reason: records that could not be used.
-- grain: week, source_file, reason
select
    strftime(date, '%G-W%V') as week,
    source_file,
    reason,
    count(*) as rejected_rows
from raw_rejects
group by all
order by week, source_file, reason
