-- Makes an owner the only one whose reads and acknowledgements of a partition are accepted.
-- Keys: 1 lock (hash: owner, epoch, until, reads, gate, gates), 2 events (stream), 3 quarantine
--       (string), 4 gate to open, 5 gate to delete (the one that the lock names, or 4 if it names
--       none).
-- Args: 1 owner, 2 epoch, 3 ttl in ms, 4 group, 5 number of the gate to open under this lease.
-- Response: {-1, nil} rejected; {-2, nil} the lock names another gate than key 5; {0 fenced | 1
--       fenced and in quarantine, last delivered id}.
-- Invariant: the epoch in the lock never decreases, and neither does the number of the gate under
-- one epoch. At most one gate exists. The group exists afterwards; a new one starts with the first
-- event.
-- A gate is an empty stream with a group of the same name. A read names the gate beside the events,
-- and Redis reads neither if the gate is missing.
local lock = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'gate', 'gates')
local epoch, mine = tonumber(lock[1] or '0'), tonumber(ARGV[2])
if epoch > mine or (epoch == mine and lock[2] ~= ARGV[1]) then return {-1, false} end
if epoch == mine and tonumber(lock[4] or '0') > tonumber(ARGV[5]) then return {-1, false} end
if (lock[3] or KEYS[4]) ~= KEYS[5] then return {-2, false} end

local function group(key, from)
  local made = redis.pcall('XGROUP', 'CREATE', key, ARGV[4], from, 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP') then return made end
end
local wrong = group(KEYS[2], '0')
if wrong then return wrong end
if KEYS[5] ~= KEYS[4] then redis.call('DEL', KEYS[5]) end
wrong = group(KEYS[4], '$')
if wrong then return wrong end
redis.call('PEXPIRE', KEYS[4], ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if epoch < mine then redis.call('HDEL', KEYS[1], 'reads') end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', ARGV[2], 'until', string.format('%.0f', now + ARGV[3]),
  'gate', KEYS[4], 'gates', ARGV[5])
local delivered
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[2])) do
  local fields = {}
  for at = 1, #info, 2 do fields[info[at]] = info[at + 1] end
  if fields.name == ARGV[4] then delivered = fields['last-delivered-id'] end
end
return {redis.call('EXISTS', KEYS[3]), delivered}
