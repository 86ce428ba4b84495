#!lua flags=no-writes
-- Builds a page of a timeline as JSON.
-- KEYS[1]: ids of posts by time (sorted set). ARGV: number of posts to skip, number of posts to return.
-- Posts and their authors are the hashes post:ID and user:ID, whose names stand in the data.
local from = tonumber(ARGV[1])
local posts = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], from, from + ARGV[2] - 1, 'REV')) do
    local post = redis.call('HMGET', 'post:' .. id, 'author', 'text', 'likes')
    -- A post that was deleted may still be in the timeline.
    if post[1] then
        local name = redis.call('HGET', 'user:' .. post[1], 'name') or cjson.null
        posts[#posts + 1] = {id = tonumber(id), author = name, text = post[2], likes = tonumber(post[3])}
    end
end
-- An empty Lua table would become {}.
if #posts == 0 then return '[]' end
return cjson.encode(posts)
