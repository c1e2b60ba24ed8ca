-- Writes off the unused numbers of a dead source.
-- Keys: 1 epoch, 2 counters (hash). Args: 1 epoch, 2 counter, 3 source.
-- Reply: how many numbers; nil if they are written off already or the source is unknown.
-- Invariant: written-off numbers count as used and are never granted again.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return false end
local name = ARGV[2]
local mine = name .. ':by:' .. ARGV[3]
local own = {}
for number in string.gmatch(redis.call('HGET', KEYS[2], mine) or '', '%d+') do own[#own + 1] = tonumber(number) end
if #own ~= 7 or own[7] ~= 0 then return false end
local held = math.max(0, own[4] - own[5] - own[6])
own[7] = 1
local parts = {}
for at = 1, 7 do parts[at] = string.format('%.0f', own[at]) end
redis.call('HSET', KEYS[2], mine, table.concat(parts, ' '))
redis.call('HINCRBY', KEYS[2], name .. ':out', string.format('%.0f', 0 - held))
return held
