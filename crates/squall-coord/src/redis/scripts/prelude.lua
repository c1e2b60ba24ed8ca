-- Removes expired members and their leases, and defines functions for the scripts of a lease store.
-- The program prepends it to each script, so every operation expires members first.
-- Keys: 1 members (string, JSON), 2 live (sorted set, deadline in ms), 3 held (hash), 4 control
--   (stream).
-- Args: 1 clock skew in ms (0 outside tests), 2 the field of the units in the members record.
-- Invariant: an expired member has lost its membership and its leases before the operation reads
--   anything; revisions and epochs grow, even if the hash is deleted alone.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000) + tonumber(ARGV[1])

local function whole(number) return string.format('%.0f', number) end

-- runnel writes the time when a member joined as text. Its members have no deadline in `live` and get
-- no units here; heartbeat.lua removes them.
local function of_runnel(member) return type(member.joined_at) == 'string' end

local function members()
  local text = redis.call('GET', KEYS[1])
  if not text then return {} end
  local ok, decoded = pcall(cjson.decode, text)
  local function check(readable)
    -- A string, because Redis 6 cannot raise a table. The program looks for these words.
    if not readable then error(KEYS[1] .. ' holds text that Squall did not write') end
  end
  check(ok and type(decoded) == 'table' and string.find(text, '^%s*{'))
  for _, member in pairs(decoded) do
    check(type(member) == 'table' and type(member[ARGV[2]] or {}) == 'table')
    check(of_runnel(member) or (type(member.joined_at) == 'number' and type(member.entry) == 'number'))
  end
  return decoded
end

-- Writes JSON by hand, because cjson encodes an empty list as an object.
local function save(all)
  local ids, parts = {}, {}
  for id in pairs(all) do ids[#ids + 1] = id end
  if #ids == 0 then redis.call('DEL', KEYS[1]) return end
  table.sort(ids)
  for at, id in ipairs(ids) do
    local units = {}
    for n, unit in ipairs(all[id][ARGV[2]] or {}) do
      unit = tostring(unit)
      units[n] = (unit == '0' or string.find(unit, '^[1-9]%d*$')) and unit or cjson.encode(unit)
    end
    local joined = of_runnel(all[id]) and cjson.encode(all[id].joined_at)
      or whole(all[id].joined_at) .. ',"entry":' .. whole(all[id].entry) .. (all[id].leaving and ',"leaving":true' or '')
    parts[at] = cjson.encode(id) .. ':{"joined_at":' .. joined .. ',' .. cjson.encode(ARGV[2]) .. ':[' .. table.concat(units, ',') .. ']}'
  end
  redis.call('SET', KEYS[1], '{' .. table.concat(parts, ',') .. '}')
end

local function revision() return tonumber(redis.call('HGET', KEYS[3], 'revision') or '0') end

-- The id of a control entry is the revision, so a reader that asks for all entries after the last
-- one it has seen misses none. `executor_ids` is the name for member ids, and 'dead' the reason for
-- expired members, in runnel, a stream library whose format on Redis squall-streams keeps. It is
-- always a list there; cjson would encode an empty one as an object.
local function bump_revision(reason, ids)
  local id = redis.call('HINCRBY', KEYS[3], 'revision', 1) .. '-0'
  local function add()
    return redis.pcall('XADD', KEYS[4], 'MAXLEN', '~', 256, id, 'reason', reason, 'executor_ids',
      #ids == 0 and '[]' or cjson.encode(ids))
  end
  local added = add()
  if type(added) == 'table' and added.err then
    if string.find(added.err, 'WRONGTYPE') then error(added.err) end
    redis.call('DEL', KEYS[4]) -- a remainder of an earlier store; the stream is only a wake-up
    add()
  end
end

-- '<epoch> <member>' → epoch, member
local function lease(text)
  local space = string.find(text, ' ', 1, true)
  return string.sub(text, 1, space - 1), string.sub(text, space + 1)
end

local function remove_member(all, id)
  all[id] = nil
  redis.call('ZREM', KEYS[2], id)
  local held = redis.call('HGETALL', KEYS[3])
  for at = 1, #held, 2 do
    if string.sub(held[at], 1, 5) == 'unit:' then
      local _, holder = lease(held[at + 1])
      if holder == id then redis.call('HDEL', KEYS[3], held[at]) end
    end
  end
end

-- The hash was deleted alone. If it counted from 0 again, each wait for a change would end at once with
-- an old entry of the stream, and leases would get epochs that earlier holders had. The time is above
-- every epoch that was counted from 0.
if redis.call('HEXISTS', KEYS[3], 'revision') == 0 and redis.call('EXISTS', KEYS[2], KEYS[4]) > 0 then
  local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
  redis.call('HSET', KEYS[3], 'revision', last and string.match(last[1], '^%d+') or 0, 'epoch', whole(now))
  bump_revision('repair', {})
end

local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', whole(now))
if #expired > 0 then
  local all = members()
  for _, id in ipairs(expired) do remove_member(all, id) end
  save(all)
  bump_revision('dead', expired)
end
