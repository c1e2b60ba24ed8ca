-- Removes the view of an earlier run.
-- Keys: 1 epoch, 2… sets and streams to remove. Args: 1 epoch. Reply: 1, or 0 if another run has
--   begun.
-- Invariant: an earlier run removes nothing of a later one; keys that are neither set nor stream
--   are foreign and stay.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return 0 end
for n = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[n]).ok
  if kind == 'set' or kind == 'stream' then redis.call('UNLINK', KEYS[n]) end
end
return 1
