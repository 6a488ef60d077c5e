-- Number as the texts print it: three digits, from a thousand on whole with its thousands apart
-- example: select figure_text(1234.5)
create or replace macro figure_text(figure) as (
    format(case when figure >= 999.5 then '{:,.0f}' else '{:.3g}' end, cast(figure as double))
)
