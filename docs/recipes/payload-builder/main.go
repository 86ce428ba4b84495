package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var lua string

var script = redis.NewScript(lua)

type post struct {
	Author string
	Text   string
	Likes  int
}

func page(ctx context.Context, r *redis.Client, skip int) (posts []post) {
	text, err := script.Run(ctx, r, []string{"timeline"}, skip, 10).Text()
	if err == nil {
		err = json.Unmarshal([]byte(text), &posts)
	}
	if err != nil {
		log.Fatal(err)
	}
	return posts
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
	if _, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.HSet(ctx, "user:1", "name", "Ada")
		pipe.HSet(ctx, "user:2", "name", "Bob")
		pipe.HSet(ctx, "post:10", "author", 1, "text", "first", "likes", 7)
		pipe.HSet(ctx, "post:11", "author", 2, "text", "second", "likes", 0)
		pipe.ZAdd(ctx, "timeline", redis.Z{Score: 1000, Member: 10}, redis.Z{Score: 2000, Member: 11}, redis.Z{Score: 1500, Member: 12})
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	for _, post := range page(ctx, r, 0) {
		fmt.Printf("%s: %s (%d likes)\n", post.Author, post.Text, post.Likes)
	}
	fmt.Println(len(page(ctx, r, 10)), "posts")
}
