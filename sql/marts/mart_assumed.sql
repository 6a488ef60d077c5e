-- One row per week and deployment with a plan: which of its inputs nobody measured here, in a few words.
-- grain: week, deployment_id
-- What the operator decided (headroom, spare, horizon) is no assumption about the world and is not in it.
with worded as (
    select
        week, deployment_id,
        case
            when name in ('activation_bytes', 'non_torch_bytes', 'graph_bytes', 'kv_bytes') then 'KV memory'
            when name = 'slo_pace_s' then null -- follows from the step times
            when
                name like 'step_%' or name like 'sequence_%' or name like '%_efficiency_ratio'
                then 'step times'
            when name like 'slo_%' then 'objectives'
            when name = 'gpu_price_usd_per_hour' then 'GPU price'
            when name = 'router' then 'router'
            when name in ('max_num_seqs', 'max_num_batched_tokens', 'max_model_len') then name
            else replace(name, '_', ' ')
        end as word
    from mart_assumptions
    where provenance = 'assumed' and deployment_id <> '(all)'
),

placed as (
    select distinct
        week, deployment_id, word,
        coalesce(
            list_position(['step times', 'objectives', 'KV memory', 'router', 'GPU price'], word), 3.5
        ) as word_place
    from worded
    where word is not null
)

select week, deployment_id, string_agg(word, ', ' order by word_place, word) as assumed_text
from placed
group by week, deployment_id
order by week, deployment_id
