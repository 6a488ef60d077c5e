-- One row per setting that is not what its name and unit say, or that readers need and do not find: none may exist.
-- grain: name, what
-- Which zone or package version there is, the reader of the fleet file knows: here a text only must not be empty.
with settings as (
    select name, coalesce(value_text, '') as value_text, coalesce(unit, '') as unit, provenance from dim_settings
),

needed as (
    -- what opens the file asks for them by name
    select unnest(['kvledger_version', 'warehouse_version']) as name
)

select name, 'value' as what, nullif(value_text, '') as found
from settings
where
    case
        when unit = 'ratio' then not coalesce(try_cast(value_text as double) between 0 and 1e9, false)
        when unit <> '' or name = 'warehouse_version' then not regexp_full_match(value_text, '\d+')
        when name = 'identifiers' then value_text not in ('hashed', 'plain')
        else value_text = ''
    end
union all
select name, 'unit' as what, unit as found
from settings
where unit <> '' and not ends_with(name, '_' || unit)
union all
select name, 'provenance' as what, provenance as found
from settings
where coalesce(provenance, '') not in ('measured', 'assumed')
union all
select needed.name, 'missing' as what, null as found
from needed
left join settings on needed.name = settings.name
where settings.name is null and (select count(*) > 0 from dim_settings)
