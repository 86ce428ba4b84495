package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var lua string

var (
	script = redis.NewScript(lua)
	keys   = []string{"{mail}:waiting", "{mail}:working", "{mail}:payloads", "{mail}:last"}
)

// queue runs an operation; its reply is nil if there is no job.
func queue(r *redis.Client, args ...any) any {
	reply, err := script.Run(context.Background(), r, keys, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		log.Fatal(err)
	}
	return reply
}

func main() {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		log.Fatal(err)
	}
	r := redis.NewClient(options)
	for _, name := range []string{"ada", "bob"} {
		fmt.Println("put", queue(r, "put", "welcome "+name))
	}

	// A worker has 30 seconds for a job.
	job := queue(r, "take", 30_000).([]any)
	fmt.Printf("job %d: %s\n", job[0], job[1])
	fmt.Println("done:", queue(r, "done", job[0], job[2]) == int64(1))
	fmt.Println("done again:", queue(r, "done", job[0], job[2]) == int64(1))
	job = queue(r, "take", 30_000).([]any)
	fmt.Printf("job %d: %s\n", job[0], job[1])
	if queue(r, "take", 30_000) == nil {
		fmt.Println("no job")
	}
}
