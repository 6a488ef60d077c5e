-- ISO week of a moment in UTC, as the week columns have it
-- example: select week_of(timestamp '2026-11-16 00:00:00')
create or replace macro week_of(moment_at) as (
    strftime(moment_at, '%G-W%V')
)
