-- Marks a member as leaving.
-- Keys: as the prelude. Args: as the prelude, 3 member. Reply: 1.
-- Invariant: the mark is never removed; leases stay untouched.
local all = members()
if all[ARGV[3]] and not all[ARGV[3]].leaving then
  all[ARGV[3]].leaving = true
  save(all)
  bump_revision('leave', {ARGV[3]})
end
return 1
