-- Appends a batch to a partition.
-- Keys: 1 events, 2 last batch of this sender (string '<sequence> <last id>').
-- Args: 1 sequence of this sender, 2 partition size, 3 how long to keep the sequence in ms, 4 '1'
--       to drop the oldest events if no processor is registered, 5 number of records, 6 id of this
--       sender if the server has IDMP (Redis 8.6), else ''; then for each record: number of field
--       arguments, field, value, ….
-- Response: {'ok', id…} or {'full', name of the processor that is furthest behind, or ''} or
--       {'stale'}.
-- Invariant: a batch is appended once, however often it is sent. An event that a registered
-- processor (a consumer group) has not acknowledged is never trimmed.
local sent = redis.call('GET', KEYS[2])
if sent then
  local space = string.find(sent, ' ', 1, true)
  local sequence = tonumber(string.sub(sent, 1, space - 1))
  if sequence > tonumber(ARGV[1]) then return {'stale'} end
  if sequence == tonumber(ARGV[1]) then
    -- No entry comes between those of a batch, so its ids are the last ones up to the stored one.
    local entries = redis.call('XREVRANGE', KEYS[1], string.sub(sent, space + 1), '-', 'COUNT', ARGV[5])
    local response = {'ok'}
    for at = #entries, 1, -1 do response[#response + 1] = entries[at][1] end
    return response
  end
end

local function parts(id)
  local dash = string.find(id, '-', 1, true)
  return tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
end

local function before(a, b)
  local a1, a2 = parts(a)
  local b1, b2 = parts(b)
  return a1 < b1 or (a1 == b1 and a2 < b2)
end

-- The first id that must stay, and the processor that needs it.
local function first_needed()
  local lowest, slowest
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local info = {}
    for at = 1, #group, 2 do info[group[at]] = group[at + 1] end
    local first
    if info.pending > 0 then
      first = redis.call('XPENDING', KEYS[1], info.name)[2]
    else
      local ms, seq = parts(info['last-delivered-id'])
      first = string.format('%.0f-%.0f', ms, seq + 1)
    end
    if not lowest or before(first, lowest) then lowest, slowest = first, info.name end
  end
  return lowest, slowest
end

local count, size = tonumber(ARGV[5]), tonumber(ARGV[2])
local free = size - redis.call('XLEN', KEYS[1])
if free < count then
  local slowest = ''
  if redis.call('EXISTS', KEYS[1]) == 1 then
    local lowest
    lowest, slowest = first_needed()
    if lowest then
      redis.call('XTRIM', KEYS[1], 'MINID', lowest)
    elseif ARGV[4] == '1' then
      redis.call('XTRIM', KEYS[1], 'MAXLEN', math.max(size - count, 0))
    end
  end
  if size - redis.call('XLEN', KEYS[1]) < count then return {'full', slowest or ''} end
end

local response, at = {'ok'}, 7
for nth = 1, count do
  local n = tonumber(ARGV[at])
  if nth == 1 and ARGV[6] ~= '' then
    -- The stream records the number of the batch, in case key 2 was evicted or has expired.
    local length = redis.call('XLEN', KEYS[1])
    local id = redis.call('XADD', KEYS[1], 'IDMP', ARGV[6], ARGV[1], '*', unpack(ARGV, at + 1, at + n))
    if redis.call('XLEN', KEYS[1]) == length then
      for _, entry in ipairs(redis.call('XRANGE', KEYS[1], id, '+', 'COUNT', count)) do response[#response + 1] = entry[1] end
      break
    end
    response[2] = id
  else
    response[#response + 1] = redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + n))
  end
  at = at + n + 1
end
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. response[#response], 'PX', ARGV[3])
return response
