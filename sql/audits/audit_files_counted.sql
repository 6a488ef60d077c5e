-- One row per log file whose records do not add up: none may exist.
-- grain: source, source_file
select source, source_file, read_rows, loaded_rows, duplicates_rows, rejected_rows
from dim_source_files
where read_rows <> loaded_rows + duplicates_rows + rejected_rows
