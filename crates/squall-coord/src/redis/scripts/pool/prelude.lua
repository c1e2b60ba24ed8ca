-- Runs before every operation on a pool; the program prepends it to each script.
-- Keys: 1 resources (hash, pool → number of items), 2 available (set), 3 held (hash, id → '<grant>
--   <run> <ticket> <holder>'), 4 holders (hash, '<run> <holder>' → number of held items), 5 waiting
--   (sorted set, ticket by arrival), 6 tickets (hash, 'ticket:<t>' → 'h <id>' or 'w <run> <until>
--   <called> <holder>'; the counters 'grants' and 'arrivals'; 'numbers', the next item number to
--   check in the run 'numbered'; 'renewed', the run for which the pool was last emptied), 7 live
--   (sorted set of the members), 8 test:epoch (string), 9 calls (stream of all pools).
-- Args: 1 clock skew in ms (0 outside tests), 2 pool, 3 turn timeout in ms, 4 most waiters to
--   notify at once.
-- A ticket is the id of a request. A call is a notification of waiters.
-- Invariant: every item is either available or held by one grant; every operation ends by notifying
--   the next waiters.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000) + tonumber(ARGV[1])
local run = tonumber(redis.call('GET', KEYS[8]) or '0')

local function not_a_number(what) return redis.error_reply('WRONGTYPE ' .. what .. ' is not a whole number') end
if not run or run < 0 then return not_a_number('test:epoch') end

local function whole(number) return string.format('%.0f', number) end

local function alive(holder)
  local deadline = redis.call('ZSCORE', KEYS[7], holder)
  return deadline and tonumber(deadline) > now
end

local function is_active_holder(of_run, holder) return tonumber(of_run) >= run and alive(holder) end

local function held_item(id)
  local record = redis.call('HGET', KEYS[3], id)
  if not record then return nil end
  local grant, of_run, ticket, holder = string.match(record, '^(%d+) (%d+) (%w+) (.*)$')
  return {grant = grant, run = of_run, ticket = ticket, holder = holder}
end

local function return_item(id)
  local record = held_item(id)
  redis.call('HDEL', KEYS[3], id)
  redis.call('HDEL', KEYS[6], 'ticket:' .. record.ticket)
  local by = record.run .. ' ' .. record.holder
  if redis.call('HINCRBY', KEYS[4], by, -1) <= 0 then redis.call('HDEL', KEYS[4], by) end
  redis.call('SADD', KEYS[2], id)
end

-- Frees all items whose '<run> <holder>' is in the set.
local function reclaim_from(lost)
  local count = 0
  if next(lost) == nil then return count end
  for _, id in ipairs(redis.call('HKEYS', KEYS[3])) do
    local record = held_item(id)
    if lost[record.run .. ' ' .. record.holder] then
      return_item(id)
      count = count + 1
    end
  end
  return count
end

local function reclaim_abandoned()
  local lost = {}
  for _, by in ipairs(redis.call('HKEYS', KEYS[4])) do
    local of_run, holder = string.match(by, '^(%d+) (.*)$')
    if not is_active_holder(of_run, holder) then lost[by] = true end
  end
  return reclaim_from(lost)
end

local function queued_request(ticket)
  local text = redis.call('HGET', KEYS[6], 'ticket:' .. ticket)
  if not text then return nil end
  local of_run, till, called, holder = string.match(text, '^w (%d+) (%d+) (%d+) (.*)$')
  if not of_run then return nil end
  return {run = of_run, till = till, called = called, holder = holder}
end

local function write_queued_request(ticket, of)
  redis.call('HSET', KEYS[6], 'ticket:' .. ticket, 'w ' .. of.run .. ' ' .. of.till .. ' ' .. of.called .. ' ' .. of.holder)
end

local function remove_from_queue(ticket)
  redis.call('HDEL', KEYS[6], 'ticket:' .. ticket)
  return redis.call('ZREM', KEYS[5], ticket)
end

local function is_still_waiting(of)
  if not of or tonumber(of.till) <= now or not is_active_holder(of.run, of.holder) then return false end
  return of.called == '0' or now < tonumber(of.called) + tonumber(ARGV[3])
end

-- Returns the first `count` tickets that still wait, and removes expired ones on the way.
local function first_waiting(count)
  local found, at = {}, 0
  while #found < count do
    local page = redis.call('ZRANGE', KEYS[5], at, at + count - #found - 1)
    if #page == 0 then break end
    for _, ticket in ipairs(page) do
      if is_still_waiting(queued_request(ticket)) then
        found[#found + 1] = ticket
        at = at + 1
      else
        remove_from_queue(ticket)
      end
    end
  end
  return found
end

local function notify_limit() return math.min(redis.call('SCARD', KEYS[2]), tonumber(ARGV[4])) end

-- The number of the last call, which is the id of its stream entry.
local function last_call()
  local last = redis.call('XREVRANGE', KEYS[9], '+', '-', 'COUNT', 1)
  if #last == 0 then return 0 end
  return tonumber(string.match(last[1][1], '^(%d+)-'))
end

-- Notifies the tickets whose turn it is, once each.
local function notify_next()
  if redis.call('ZCARD', KEYS[5]) == 0 then return end
  local turn = {}
  for _, ticket in ipairs(first_waiting(notify_limit())) do
    local of = queued_request(ticket)
    if of.called == '0' then
      of.called = whole(now)
      write_queued_request(ticket, of)
      turn[#turn + 1] = ticket
    end
  end
  if #turn > 0 then
    redis.call('XADD', KEYS[9], 'MAXLEN', '~', 1024, whole(last_call() + 1) .. '-0', 'pool', ARGV[2], 'tickets', table.concat(turn, ' '))
  end
end

-- Adds items to the pool that vikhry's orchestrator has created: it writes payloads and the number of
-- items, and expects workers to add the ids from pool_loaded_count + 1 to that number. Stops at an item
-- whose payload is not written yet, and after 5000 items; the next call continues. pool_loaded_count is
-- derived from KEYS[2] and shares its slot. Returns the number of items and whether all are loaded.
local function load_created_items()
  local base = string.sub(KEYS[2], 1, -string.len('available') - 1)
  local total = tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '0')
  local loaded = tonumber(redis.call('GET', base .. 'pool_loaded_count') or '0')
  if not total or not loaded or loaded >= total then return total, true end
  local first = loaded
  while loaded < total and loaded - first < 5000 and redis.call('EXISTS', base .. whole(loaded + 1)) == 1 do
    loaded = loaded + 1
    if redis.call('HEXISTS', KEYS[3], whole(loaded)) == 0 then redis.call('SADD', KEYS[2], whole(loaded)) end
  end
  if loaded > first then redis.call('SET', base .. 'pool_loaded_count', whole(loaded)) end
  return total, loaded == total
end
