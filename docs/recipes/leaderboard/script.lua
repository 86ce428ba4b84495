-- Adds points of a player and returns the part of the board around the player.
-- KEYS[1]: the board (sorted set). ARGV: player, points, number of players to show on each side.
-- Returns {rank of the first player shown, {player, score, player, score, ...}}, best first.
local board, player, sides = KEYS[1], ARGV[1], tonumber(ARGV[3])
redis.call('ZINCRBY', board, ARGV[2], player)
local rank = redis.call('ZREVRANK', board, player)
local from = math.max(0, rank - sides)
return {from + 1, redis.call('ZRANGE', board, from, rank + sides, 'REV', 'WITHSCORES')}
