-- Renews a membership.
-- Keys: as the prelude, 5 heartbeat. Args: as the prelude, 3 member, 4 ttl in ms.
-- Reply: the revision, or -1 if the membership has expired, and the revision of the last
--   assignment.
-- Invariant: a heartbeat never revives an expired membership. A member of runnel stays listed as long
--   as its own heartbeat key exists.
-- The usual case needs one ZADD and no ZSCORE, because a thousand members send a thousand
--   heartbeats a second.
if redis.call('ZADD', KEYS[2], 'XX', 'CH', whole(now + tonumber(ARGV[4])), ARGV[3]) == 0
  and not redis.call('ZSCORE', KEYS[2], ARGV[3]) then return {-1, 0} end
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])

-- Removes members of runnel whose own heartbeat keys have expired. Those keys are not declared: they
-- exist only beside runnel's key names, which no cluster has.
local function remove_dead_of_runnel()
  local prefix, all, dead, alive = string.sub(KEYS[5], 1, -#ARGV[3] - 1), members(), {}, false
  for id, member in pairs(all) do
    if of_runnel(member) then
      if redis.call('EXISTS', prefix .. id) == 1 then alive = true else dead[#dead + 1] = id end
    end
  end
  for _, id in ipairs(dead) do all[id] = nil end
  if not alive then redis.call('HDEL', KEYS[3], 'of_runnel') end
  if #dead > 0 then
    save(all)
    bump_revision('dead', dead)
  end
end

local known = redis.call('HMGET', KEYS[3], 'revision', 'assigned', 'of_runnel')
if known[3] then remove_dead_of_runnel() end
return {tonumber(known[1] or '0'), tonumber(known[2] or '0')}
