-- Returns numbers, reports used ones and acquires a block.
-- Keys: 1 epoch, 2 counters (hash). Args: 1 epoch, 2 counter, 3 source, 4 sequence, 5 used, 6 most
--   numbers, 7 limit, 8 ttl in ms, 9… first and end of every returned block.
-- Reply: nil if another run has begun; else first, end, remaining, held by others.
-- Invariant: one source at a time has a number, and another source gets it only after it was
--   returned; a repeated request gets the same reply.
if tonumber(redis.call('GET', KEYS[1]) or '0') ~= tonumber(ARGV[1]) then return false end
local name = ARGV[2]
local function whole(number) return string.format('%.0f', number) end
local function field(part) return tonumber(redis.call('HGET', KEYS[2], name .. ':' .. part) or '0') end
local mine = name .. ':by:' .. ARGV[3]
-- sequence, first, end, allocated, returned, used, written off
local own = {}
for number in string.gmatch(redis.call('HGET', KEYS[2], mine) or '', '%d+') do own[#own + 1] = tonumber(number) end
if #own ~= 7 then own = {0, 0, 0, 0, 0, 0, 0} end
local function held() return math.max(0, own[4] - own[5] - own[6]) end
local turn, most, limit = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[7])
local following, out, back = field('next'), field('out'), {}
for number in string.gmatch(redis.call('HGET', KEYS[2], name .. ':back') or '', '%d+') do back[#back + 1] = tonumber(number) end
if turn > own[1] then
  local counted = own[7] == 0 and held() or 0
  for at = 9, #ARGV, 2 do
    back[#back + 1], back[#back + 2] = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    own[5] = own[5] + back[#back] - back[#back - 1]
  end
  local first, last = 0, 0
  if most > 0 and #back > 0 then
    first, last = back[1], math.min(back[2], back[1] + most)
    back[1] = last
    if back[1] == back[2] then
      table.remove(back, 1)
      table.remove(back, 1)
    end
  elseif most > 0 and following < limit then
    first, last = following, math.min(limit, following + most)
    following = last
  end
  own[1], own[2], own[3], own[4] = turn, first, last, own[4] + last - first
  own[6], own[7] = math.max(own[6], tonumber(ARGV[5])), 0
  out = out + held() - counted
  local texts, parts = {}, {}
  for at = 1, #back do texts[at] = whole(back[at]) end
  for at = 1, 7 do parts[at] = whole(own[at]) end
  redis.call('HSET', KEYS[2], name .. ':limit', ARGV[7], name .. ':next', whole(following), name .. ':out', whole(out),
    name .. ':back', table.concat(texts, ' '), mine, table.concat(parts, ' '))
  redis.call('PEXPIRE', KEYS[2], ARGV[8])
end
local left = math.max(0, limit - following)
for at = 1, #back, 2 do left = left + back[at + 1] - back[at] end
local first, last = 0, 0
if turn == own[1] then first, last = own[2], own[3] end
return {first, last, left, out - (own[7] == 0 and held() or 0)}
