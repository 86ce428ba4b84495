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
	keys   = []string{"{report}:lock", "{report}:token"}
)

func acquire(ctx context.Context, r *redis.Client, owner string) {
	token, err := script.Run(ctx, r, keys, "acquire", owner, 30_000).Int()
	switch {
	case errors.Is(err, redis.Nil):
		fmt.Printf("%s: held by another owner\n", owner)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("%s: token %d\n", owner, token)
	}
}

func release(ctx context.Context, r *redis.Client, owner string) {
	released, err := script.Run(ctx, r, keys, "release", owner).Int()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", owner, map[int]string{1: "released", 0: "not the owner"}[released])
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
	ctx, r := context.Background(), redis.NewClient(options)
	acquire(ctx, r, "ada")
	acquire(ctx, r, "bob")
	release(ctx, r, "ada")
	acquire(ctx, r, "bob")
	release(ctx, r, "ada")
}
