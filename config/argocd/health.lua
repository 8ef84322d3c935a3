-- How healthy Argo CD finds an object of operator.kcp.io: what its conditions say, which are the same for all kinds.
-- Degraded means that somebody has to act; what the operator is still working at is Progressing.
local function waiting(message)
  return {status = "Progressing", message = message}
end

local generation = obj.metadata.generation or 0
if obj.status == nil or obj.status.conditions == nil then
  return waiting("the operator has not seen it yet")
end
if (obj.status.observedGeneration or 0) < generation then
  return waiting("the operator has not seen the last change yet")
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
-- The only member of an etcd is away whenever it is replaced, so one says nothing.
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
  return {status = "Suspended", message = "no changes are made: spec.maintenance.paused"}
end
if is("Ready") then
  return {status = "Healthy", message = ready.message}
end
return waiting(ready ~= nil and ready.message or "the operator has not said yet how ready it is")
