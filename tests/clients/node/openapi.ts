// Uses a client that @hey-api/openapi-ts has made of openapi.json in folder `http`. The types of what it gives are checked, too.
//
// Usage: openapi.js HOST:PORT

import assert from 'node:assert/strict'
import { client } from './http/client.gen.js'
import { command, deleteKey, eval_, evalsha, key, keys, loadScript, pipeline, putKey, topology } from './http/index.js'

const COUNT = "redis.log(redis.LOG_NOTICE, 'counts') return redis.call('INCRBY', KEYS[1], ARGV[1])"

async function keysAndValues(): Promise<void> {
    await command({ body: { args: ['FLUSHALL'] }, throwOnError: true })
    const set = await command({ body: { args: ['SET', 'text', 'value'] } })
    assert.equal(set.data?.reply, 'OK')
    const refused = await command({ body: { args: ['INCR', 'text'] } })
    assert.equal(refused.error?.code, 'ERR')
    await putKey({ path: { key: 'text' }, body: { value: 'other', sticky: true, ttl_ms: 60_000 }, throwOnError: true })
    const { data: found } = await key({ path: { key: 'text' }, throwOnError: true })
    assert(found.type === 'string' && found.sticky && found.ttl_ms !== null && found.ttl_ms <= 60_000)
    const { data: page } = await keys({ query: { count: 100 }, throwOnError: true })
    assert.deepEqual(page.keys, ['text'])
    const both = await pipeline({ body: { commands: [['APPEND', 'text', 1], ['GET', 'text']], atomic: true } })
    assert.deepEqual(both.data?.replies, [6, 'other1'])
    await deleteKey({ path: { key: 'text' }, throwOnError: true })
    const missing = await key({ path: { key: 'text' } })
    assert.equal(missing.error?.status, 404)
}

async function scripts(): Promise<void> {
    const body = { script: COUNT, keys: ['count'], args: [2], trace: true, dry_run: true }
    const { data: dry } = await eval_({ body, throwOnError: true })
    assert(dry.reply === 2 && dry.run?.outcome === 'ok')
    const [log, call] = dry.trace?.steps ?? []
    assert(log !== undefined && 'log' in log && log.log.level === 'notice' && log.log.text === 'counts')
    assert(call !== undefined && 'call' in call)
    assert.deepEqual(call.call.args, ['INCRBY', 'count', '2'])
    assert.deepEqual(dry.writes?.map((write) => [write.key, write.before, write.after?.elements]), [['count', null, ['2']]])
    const { data: loaded } = await loadScript({ body: { script: COUNT }, throwOnError: true })
    const counted = await evalsha({ path: { sha: loaded.sha }, body: { keys: ['count'], args: [3] } })
    assert.equal(counted.data?.reply, 3)
    const limited = await eval_({ body: { script: 'while true do end', limits: { fuel: 1_000_000 } } })
    assert.equal(limited.error?.code, 'SCRIPTLIMIT')
    assert.equal(limited.error?.run?.outcome, 'limit')
}

client.setConfig({ baseUrl: `http://${process.argv[2]}` })
await keysAndValues()
await scripts()
const { data: shape } = await topology({ throwOnError: true })
assert.equal(shape.mode, 'embedded')
