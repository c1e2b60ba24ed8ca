-- Acquires an item, or queues the request.
-- Keys: as the prelude. Args: as the prelude, 5 holder, 6 run, 7 ticket, 8 wait in ms (0: do not
--   queue).
-- Reply: {'granted', id, grant}, {'queued', ahead, last call}, {'none_available'}, {'no_pool'},
--   {'not_member'}, or {'run_ended', current run}.
-- Invariant: waiters are served in order; a repeated request counts once; only a member gets an
--   item, and only for the current run.
local holder, of_run, ticket, wait = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if tonumber(of_run) < run then return {'run_ended', whole(run)} end
if not alive(holder) then return {'not_member'} end
local had = string.match(redis.call('HGET', KEYS[6], 'ticket:' .. ticket) or '', '^h (.*)$')
if had then
  notify_next()
  return {'granted', had, held_item(had).grant}
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return {'no_pool'} end
load_created_items()
local seen = last_call()
if redis.call('SCARD', KEYS[2]) == 0 then reclaim_abandoned() end
local mine = queued_request(ticket)
if mine then
  mine.called = '0'
  write_queued_request(ticket, mine)
end
first_waiting(notify_limit())
local rank = redis.call('ZRANK', KEYS[5], ticket)
local ahead = rank or redis.call('ZCARD', KEYS[5])
local answer
if ahead < redis.call('SCARD', KEYS[2]) then
  local id = redis.call('SPOP', KEYS[2])
  remove_from_queue(ticket)
  local grant = whole(redis.call('HINCRBY', KEYS[6], 'grants', 1))
  redis.call('HSET', KEYS[3], id, grant .. ' ' .. of_run .. ' ' .. ticket .. ' ' .. holder)
  redis.call('HSET', KEYS[6], 'ticket:' .. ticket, 'h ' .. id)
  redis.call('HINCRBY', KEYS[4], of_run .. ' ' .. holder, 1)
  answer = {'granted', id, grant}
elseif wait == 0 then
  remove_from_queue(ticket)
  answer = {'none_available'}
else
  if not rank then
    redis.call('ZADD', KEYS[5], redis.call('HINCRBY', KEYS[6], 'arrivals', 1), ticket)
    write_queued_request(ticket, {run = of_run, till = whole(now + wait), called = '0', holder = holder})
  end
  answer = {'queued', whole(ahead), whole(seen)}
end
notify_next()
return answer
