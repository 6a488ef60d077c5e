-- ISO week of a moment in UTC, as the week columns have it; a moment with a time zone counts by its instant
-- example: select week_of(timestamp '2026-11-16 00:00:00')
create or replace macro week_of(moment_at) as (
    strftime(
        case
            when typeof(moment_at) = 'TIMESTAMP WITH TIME ZONE' then timezone('UTC', cast(moment_at as timestamptz))
            else cast(moment_at as timestamp)
        end,
        '%G-W%V'
    )
)
