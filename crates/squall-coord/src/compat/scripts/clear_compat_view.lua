-- Takes down what an earlier run has shown.
-- Keys: 1 epoch, 2… sets and streams to remove. Args: 1 epoch. Answer: 1, or 0 if another run has begun.
-- Invariant: an earlier run takes nothing down that a later one shows; what is neither set nor stream is not ours and stays.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
for n = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[n]).ok
  if kind == 'set' or kind == 'stream' then redis.call('UNLINK', KEYS[n]) end
end
return 1
