package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var lua string

var take = redis.NewScript(lua)

// allow lets a user make 3 requests at once, and 3 in a minute.
func allow(ctx context.Context, r *redis.Client, user string) (bool, error) {
	reply, err := take.Run(ctx, r, []string{"limit:" + user}, 3, 3.0/60, 1).Int64Slice()
	return err == nil && reply[0] == 1, err
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
	for _, user := range []string{"ada", "ada", "ada", "ada", "bob"} {
		allowed, err := allow(context.Background(), r, user)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", user, map[bool]string{true: "allowed", false: "refused"}[allowed])
	}
}
