-- One row per week, log file and reason: records that could not be used.
-- grain: week, source_file, reason
select
    case when date > '1970-01-01' then strftime(date, '%G-W%V') else '(none)' end as week,
    source_file,
    reason,
    count(*) as rejected_rows
from raw_rejects
group by all
order by week, source_file, reason
