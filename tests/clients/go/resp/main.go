// What programs do with go-redis, redis_rate and asynq: pipelines, scripts, watched transactions, messages, streams; rate
// limits; tasks with delays, retries and unique ones.
//
// Usage: resp HOST:PORT DB
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// The clients' own 3 seconds are short on a busy machine, and who is not answered in time asks again.
const patience = time.Minute

// A counter that never passes its limit.
var seats = redis.NewScript(`
local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
return redis.call('INCR', KEYS[1])`)

// expect ends the program if something is not as it should be.
func expect(ok bool, what string, seen ...any) {
	if !ok {
		log.Fatalf("%s: %v", what, seen)
	}
}

// must is the result of a call that may not fail.
func must[T any](result T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return result
}

func scripts(ctx context.Context, r *redis.Client) {
	for want := range 2 {
		expect(must(seats.Run(ctx, r, []string{"seats"}, 2).Int()) == want+1, "a seat")
	}
	err := seats.Run(ctx, r, []string{"seats"}, 2).Err()
	expect(err != nil && err.Error() == "FULL at 2", "a third seat", err)
	reply := must(redis.NewScript("return {KEYS[1], ARGV[1], 7, false}").RunRO(ctx, r, []string{"k"}, "\x00\xff").Slice())
	expect(slices.Equal(reply, []any{"k", "\x00\xff", int64(7), nil}), "a reply", reply)
}

func transactions(ctx context.Context, r *redis.Client) {
	replies := must(r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for index := range 500 {
			pipe.IncrBy(ctx, "sum", int64(index))
		}
		return nil
	}))
	expect(replies[499].(*redis.IntCmd).Val() == 499*500/2, "a pipeline", replies[499])
	replies, err := r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "text", "x", 0)
		pipe.Incr(ctx, "text")
		pipe.Append(ctx, "text", "y")
		return nil
	})
	expect(err != nil && strings.Contains(err.Error(), "not an integer"), "an error in a transaction", err)
	expect(replies[2].(*redis.IntCmd).Val() == 2, "what is behind it", replies[2])

	// Many raise a counter, each as often as it takes.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			raise := func(tx *redis.Tx) error {
				seen, err := tx.Get(ctx, "watched").Int()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
					return pipe.Set(ctx, "watched", seen+1, 0).Err()
				})
				return err
			}
			for {
				err := r.Watch(ctx, raise, "watched")
				if err == nil {
					return
				}
				expect(errors.Is(err, redis.TxFailedErr), "WATCH", err)
			}
		})
	}
	all.Wait()
	expect(r.Get(ctx, "watched").Val() == "8", "the counter", r.Get(ctx, "watched"))
}

func values(ctx context.Context, r *redis.Client) {
	type seat struct {
		Row  int    `redis:"row"`
		Name string `redis:"name"`
	}
	must(r.HSet(ctx, "h", seat{7, "x"}).Result())
	var read seat
	expect(r.HGetAll(ctx, "h").Scan(&read) == nil && read == seat{7, "x"}, "a hash", read)
	must(r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2.5, Member: "b"}).Result())
	ranks := must(r.ZRangeWithScores(ctx, "z", 0, -1).Result())
	expect(slices.Equal(ranks, []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}}), "a sorted set", ranks)
	expect(errors.Is(r.Get(ctx, "none").Err(), redis.Nil), "a key that is not there")
	expect(must(r.SetNX(ctx, "e", "x", time.Minute).Result()), "SET NX")
	expect(r.TTL(ctx, "e").Val() > 30*time.Second, "its time to live", r.TTL(ctx, "e"))
	for index := range 100 {
		must(r.Set(ctx, fmt.Sprintf("scan:%d", index), index, 0).Result())
	}
	found := r.Scan(ctx, 0, "scan:*", 10).Iterator()
	seen := map[string]bool{}
	for found.Next(ctx) {
		seen[found.Val()] = true
	}
	expect(found.Err() == nil && len(seen) == 100, "SCAN", len(seen), found.Err())
	places := []*redis.GeoLocation{{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}}
	must(r.GeoAdd(ctx, "g", places...).Result())
	near := must(r.GeoSearchLocation(ctx, "g", &redis.GeoSearchLocationQuery{
		GeoSearchQuery: redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 300, RadiusUnit: "km"}, WithDist: true,
	}).Result())
	expect(len(near) == 1 && near[0].Dist > 150 && near[0].Dist < 200, "GEOSEARCH", near)
}

// messages takes a channel that nobody has used: who listened to it may still be counted.
func messages(ctx context.Context, r *redis.Client, channel string) {
	listener := r.Subscribe(ctx, channel)
	defer listener.Close()
	must(listener.Receive(ctx))
	expect(must(r.Publish(ctx, channel, "\xff").Result()) == 1, "a subscriber")
	message := <-listener.Channel()
	expect(message.Payload == "\xff" && message.Channel == channel, "a message", message)

	popped := make(chan []string)
	go func() { popped <- must(r.BLPop(ctx, time.Minute, "queue").Result()) }()
	must(r.RPush(ctx, "queue", "job").Result())
	expect(slices.Equal(<-popped, []string{"queue", "job"}), "BLPOP")
}

func streams(ctx context.Context, r *redis.Client) {
	var ids []string
	for index := range 5 {
		ids = append(ids, must(r.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []any{"n", index}}).Result()))
	}
	must(r.XGroupCreateMkStream(ctx, "s", "workers", "0").Result())
	read := &redis.XReadGroupArgs{Group: "workers", Consumer: "one", Streams: []string{"s", ">"}, Count: 3}
	mine := must(r.XReadGroup(ctx, read).Result())
	expect(len(mine) == 1 && len(mine[0].Messages) == 3 && mine[0].Messages[0].Values["n"] == "0", "XREADGROUP", mine)
	expect(must(r.XAck(ctx, "s", "workers", ids[0]).Result()) == 1, "XACK")
	claimed, _, err := r.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "workers", Consumer: "two", Start: "0"}).Result()
	expect(err == nil && len(claimed) == 2 && claimed[0].ID == ids[1], "XAUTOCLAIM", claimed, err)
	waiting := make(chan []redis.XStream)
	after := &redis.XReadArgs{Streams: []string{"s", ids[4]}, Block: time.Minute}
	go func() { waiting <- must(r.XRead(ctx, after).Result()) }()
	last := must(r.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []any{"n", 5}}).Result())
	expect((<-waiting)[0].Messages[0].ID == last, "XREAD BLOCK")
}

// limits tries redis_rate: five at once, and then none for a while.
func limits(ctx context.Context, r *redis.Client) {
	limiter := redis_rate.NewLimiter(r)
	for left := 4; left >= 0; left-- {
		result := must(limiter.Allow(ctx, "visitor", redis_rate.PerHour(5)))
		expect(result.Allowed == 1 && result.Remaining == left, "what is left", result)
	}
	result := must(limiter.Allow(ctx, "visitor", redis_rate.PerHour(5)))
	expect(result.Allowed == 0 && result.RetryAfter > 10*time.Minute && result.RetryAfter <= 12*time.Minute, "a limit", result)
	some := must(limiter.AllowAtMost(ctx, "others", redis_rate.PerHour(5), 9))
	expect(some.Allowed == 5, "at most", some)
	expect(limiter.Reset(ctx, "visitor") == nil, "reset")
	expect(must(limiter.Allow(ctx, "visitor", redis_rate.PerHour(5))).Allowed == 1, "after a reset")
}

// tasks tries asynq: ordinary, delayed, unique and failing tasks on queues of two weights.
func tasks(address string, db int) {
	options := asynq.RedisClientOpt{Addr: address, DB: db, ReadTimeout: patience}
	client := asynq.NewClient(options)
	defer client.Close()
	done := make(chan string, 100)
	work := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		tries, _ := asynq.GetRetryCount(ctx)
		if task.Type() == "stubborn" && tries < 1 {
			return errors.New("not yet")
		}
		if task.Type() == "doomed" {
			return fmt.Errorf("never: %w", asynq.SkipRetry)
		}
		done <- string(task.Payload())
		return nil
	})
	server := asynq.NewServer(options, asynq.Config{
		Concurrency:              10,
		Queues:                   map[string]int{"default": 1, "critical": 5},
		LogLevel:                 asynq.ErrorLevel,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		TaskCheckInterval:        50 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
	})
	var wanted []string
	enqueue := func(name string, options ...asynq.Option) {
		wanted = append(wanted, name)
		must(client.Enqueue(asynq.NewTask(strings.Fields(name)[0], []byte(name)), options...))
	}
	for index := range 30 {
		enqueue("plain " + strconv.Itoa(index))
	}
	enqueue("critical", asynq.Queue("critical"))
	enqueue("delayed", asynq.ProcessIn(200*time.Millisecond))
	enqueue("stubborn", asynq.MaxRetry(3))
	enqueue("kept", asynq.Retention(time.Hour), asynq.TaskID("kept"))
	enqueue("unique", asynq.Unique(time.Hour))
	_, err := client.Enqueue(asynq.NewTask("unique", []byte("unique")), asynq.Unique(time.Hour))
	expect(errors.Is(err, asynq.ErrDuplicateTask), "a second of a unique task", err)
	_, err = client.Enqueue(asynq.NewTask("kept", nil), asynq.TaskID("kept"))
	expect(errors.Is(err, asynq.ErrTaskIDConflict), "a second of an id", err)
	must(client.Enqueue(asynq.NewTask("doomed", nil), asynq.TaskID("doomed")))
	expect(server.Start(work) == nil, "a server of asynq")
	var seen []string
	for len(seen) < len(wanted) {
		select {
		case name := <-done:
			seen = append(seen, name)
		case <-time.After(time.Minute):
			log.Fatalf("only %q is done", seen)
		}
	}
	slices.Sort(seen)
	slices.Sort(wanted)
	expect(slices.Equal(seen, wanted), "what is done", seen)
	inspector := asynq.NewInspector(options)
	defer inspector.Close()
	state := func(id string, wanted asynq.TaskState) {
		deadline := time.Now().Add(time.Minute)
		for must(inspector.GetTaskInfo("default", id)).State != wanted {
			expect(time.Now().Before(deadline), "the state of a task", id)
			time.Sleep(20 * time.Millisecond)
		}
	}
	state("kept", asynq.TaskStateCompleted)
	state("doomed", asynq.TaskStateArchived)
	server.Shutdown()
	info := must(inspector.GetQueueInfo("default"))
	expect(info.Pending+info.Active+info.Scheduled+info.Retry == 0 && info.Archived == 1, "the queue", info)
}

func main() {
	address, number := os.Args[1], os.Args[2]
	db := must(strconv.Atoi(number))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{Addr: address, DB: db, Protocol: protocol, ReadTimeout: patience})
		must(r.FlushDB(ctx).Result())
		scripts(ctx, r)
		transactions(ctx, r)
		values(ctx, r)
		messages(ctx, r, fmt.Sprintf("go:%d:%d", db, protocol))
		streams(ctx, r)
		limits(ctx, r)
		must(r.FlushDB(ctx).Result())
		expect(r.Close() == nil, "close")
	}
	tasks(address, db)
	fmt.Println("go-redis, redis_rate and asynq are content")
}
