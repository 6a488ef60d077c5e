-- One row per week, log file and reason: records that could not be used.
-- grain: week, source_file, reason
select week, source_file, reason, rejected_rows
from dist_rejects
order by week, source_file, reason
