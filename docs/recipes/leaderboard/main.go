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

var script = redis.NewScript(lua)

// add returns the lines of the board around a player who has won some points.
func add(ctx context.Context, r *redis.Client, player string, points int) (lines string) {
	reply, err := script.Run(ctx, r, []string{"board"}, player, points, 1).Slice()
	if err != nil {
		log.Fatal(err)
	}
	first, board := reply[0].(int64), reply[1].([]any)
	for at := 0; at < len(board); at += 2 {
		lines += fmt.Sprintf("%d. %s %s\n", first+int64(at/2), board[at], board[at+1])
	}
	return lines
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
	add(ctx, r, "bob", 20)
	add(ctx, r, "cyd", 50)
	fmt.Print(add(ctx, r, "ada", 30))
	fmt.Print(add(ctx, r, "bob", 50))
}
