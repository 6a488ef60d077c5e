-- One row per week and thing that the reader must know: about the data, then about the plan.
-- grain: week, deployment_id, code
select week, deployment_id, code, text from mart_data_warnings
union all
select week, deployment_id, code, text from mart_plan_warnings
union all
select week, deployment_id, code, text from mart_plan_notes where code <> 'plan_kv'
order by week, deployment_id, code
