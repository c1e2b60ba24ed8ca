-- Ends a membership.
-- Keys: as the prelude, 5 heartbeat. Args: as the prelude, 3 member. Reply: 1.
-- Invariant: only members hold leases.
redis.call('DEL', KEYS[5])
if redis.call('ZSCORE', KEYS[2], ARGV[3]) then
  local all = members()
  remove_member(all, ARGV[3])
  save(all)
  bump_revision('leave', {ARGV[3]})
end
return 1
