package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var lua string

var script = redis.NewScript(lua)

func save(ctx context.Context, r *redis.Client, id int, email, city string) error {
	keys := []string{fmt.Sprint("user:", id), "users:by-email", "users:in:" + city}
	return script.Run(ctx, r, keys, id, email, city).Err()
}

func show(ctx context.Context, r *redis.Client, city string) {
	ids := r.SMembers(ctx, "users:in:"+city).Val()
	slices.Sort(ids)
	fmt.Println(city+":", strings.Join(ids, " "))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	options, err := redis.ParseURL(url)
	must(err)
	ctx, r := context.Background(), redis.NewClient(options)
	must(save(ctx, r, 1, "a@example.com", "Oslo"))
	if err := save(ctx, r, 2, "a@example.com", "Oslo"); err != nil {
		fmt.Println(err)
	}
	must(save(ctx, r, 2, "b@example.com", "Oslo"))
	show(ctx, r, "Oslo")
	must(save(ctx, r, 1, "a@example.com", "Rome"))
	show(ctx, r, "Oslo")
	show(ctx, r, "Rome")
	fmt.Println("b@example.com:", r.HGet(ctx, "users:by-email", "b@example.com").Val())
}
