-- Replaces the assignment.
-- Keys: as the prelude. Args: as the prelude, 3 expected revision, 4 JSON {member: [unit, …]}.
--   Reply: 1 if replaced, else 0.
-- Invariant: an assignment made from an old snapshot changes nothing.
if revision() ~= tonumber(ARGV[3]) then return 0 end
local wanted = cjson.decode(ARGV[4])
local all = members()
for id, member in pairs(all) do
  if not of_runnel(member) then member[ARGV[2]] = wanted[id] or {} end
end
save(all)
bump_revision('assign', {})
redis.call('HSET', KEYS[3], 'assigned', revision())
return 1
