-- Takes something, or a place in the queue.
-- Keys: as the prelude. Args: as the prelude, 5 holder, 6 run, 7 ticket, 8 wait in ms (0: do not queue).
-- Answer: {'granted', id, grant}, {'waiting', ahead, last call}, {'empty'}, {'nopool'}, {'gone'} or {'stale', run}.
-- Invariant: nobody overtakes; asking again with the same ticket is asking once; only a member of the current run gets anything.
local holder, of_run, ticket, wait = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if tonumber(of_run) < run then return {'stale', whole(run)} end
if not alive(holder) then return {'gone'} end
local had = string.match(redis.call('HGET', KEYS[6], 'ticket:' .. ticket) or '', '^h (.*)$')
if had then
  call_next()
  return {'granted', had, hold(had).grant}
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return {'nopool'} end
local seen = last_call()
if redis.call('SCARD', KEYS[2]) == 0 then reap() end
local mine = waiter(ticket)
if mine then
  mine.called = '0'
  write_waiter(ticket, mine)
end
front(window())
local rank = redis.call('ZRANK', KEYS[5], ticket)
local ahead = rank or redis.call('ZCARD', KEYS[5])
local answer
if ahead < redis.call('SCARD', KEYS[2]) then
  local id = redis.call('SPOP', KEYS[2])
  unqueue(ticket)
  local grant = whole(redis.call('HINCRBY', KEYS[6], 'grants', 1))
  redis.call('HSET', KEYS[3], id, grant .. ' ' .. of_run .. ' ' .. ticket .. ' ' .. holder)
  redis.call('HSET', KEYS[6], 'ticket:' .. ticket, 'h ' .. id)
  redis.call('HINCRBY', KEYS[4], of_run .. ' ' .. holder, 1)
  answer = {'granted', id, grant}
elseif wait == 0 then
  unqueue(ticket)
  answer = {'empty'}
else
  if not rank then
    redis.call('ZADD', KEYS[5], redis.call('HINCRBY', KEYS[6], 'arrivals', 1), ticket)
    write_waiter(ticket, {run = of_run, till = whole(now + wait), called = '0', holder = holder})
  end
  answer = {'waiting', whole(ahead), whole(seen)}
end
call_next()
return answer
