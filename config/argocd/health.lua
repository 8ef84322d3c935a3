-- Computes the health of an object of operator.kcp.io in Argo CD from its conditions, which are the same for all kinds.
-- Degraded means that action is required; Progressing means that the operator is still working.
local function waiting(message)
  return {status = "Progressing", message = message}
end

local generation = obj.metadata.generation or 0
if obj.status == nil or obj.status.conditions == nil then
  return waiting("waiting for the operator to observe the object")
end
if (obj.status.observedGeneration or 0) < generation then
  return waiting("waiting for the operator to observe the last change")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local function is(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end

local spec = obj.spec or {}
local ready = conditions.Ready
if is("Stalled") then
  return {status = "Degraded", message = conditions.Stalled.message}
end
-- An etcd with one member has no quorum whenever this member is replaced, so QuorumLost of such an etcd is ignored.
if is("QuorumLost") and spec.replicas ~= 1 then
  return {status = "Degraded", message = conditions.QuorumLost.message}
end
if ready ~= nil and ready.status ~= "True" and ready.reason == "SnapshotFailed" then
  return {status = "Degraded", message = ready.message}
end
if spec.suspend then
  return {status = "Suspended", message = "no snapshots are taken: spec.suspend"}
end
if spec.maintenance ~= nil and spec.maintenance.paused then
  return {status = "Suspended", message = "the operator is paused: spec.maintenance.paused"}
end
if is("Ready") then
  return {status = "Healthy", message = ready.message}
end
return waiting(ready ~= nil and ready.message or "waiting for the operator to set the condition Ready")
