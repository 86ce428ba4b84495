local function take(seats) return run('seats.lua', {'room:1'}, {seats}) end

function test_takes_a_seat()
    assert_equal(1, take(2))
    assert_equal('1', redis.call('GET', 'room:1'))
end

function test_refuses_when_full()
    redis.call('SET', 'room:1', 2)
    assert_error('FULL', take, 2)
    assert_equal('2', redis.call('GET', 'room:1'))
end
