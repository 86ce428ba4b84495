// How a client in Go uses Moonshard by gRPC, with the stubs that protoc makes of gateway.proto.
//
// Usage: example HOST:PORT
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	v1 "moonshard.example/gateway/v1"
)

// A counter that never passes its limit.
const seats = `
local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
return redis.call('INCR', KEYS[1])`

// codeWord is the code word of an error: NOSCRIPT, WRONGTYPE, or one that a script made up.
func codeWord(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

func words(words ...string) [][]byte {
	var args [][]byte
	for _, word := range words {
		args = append(args, []byte(word))
	}
	return args
}

// expect ends the program if something is not as it should be.
func expect(ok bool, what string, seen any) {
	if !ok {
		log.Fatalf("%s: %v", what, seen)
	}
}

func run(address string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	gateway := v1.NewGatewayClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// One command. Keys and values are any bytes.
	if _, err = gateway.Execute(ctx, &v1.ExecuteRequest{Args: words("SET", "name\xff", "moon")}); err != nil {
		return err
	}
	got, err := gateway.Execute(ctx, &v1.ExecuteRequest{Args: words("GET", "name\xff")})
	if err != nil {
		return err
	}
	expect(bytes.Equal(got.Reply.GetBulk(), []byte("moon")), "GET", got)
	if _, err = gateway.Execute(ctx, &v1.ExecuteRequest{Args: words("DEL", "seats")}); err != nil {
		return err
	}

	// A script, first by its digest; what it would do, and what it does.
	loaded, err := gateway.LoadScript(ctx, &v1.LoadScriptRequest{Script: []byte(seats)})
	if err != nil {
		return err
	}
	seat := &v1.EvalShaRequest{Sha: loaded.Sha, Keys: words("seats"), Args: words("1"), DryRun: true}
	dry, err := gateway.EvalSha(ctx, seat)
	if err != nil {
		return err
	}
	expect(len(dry.Writes) == 1 && dry.Writes[0].Before == nil, "a dry run", dry)
	seat.DryRun = false
	taken, err := gateway.EvalSha(ctx, seat)
	if err != nil {
		return err
	}
	expect(taken.Reply.GetInteger() == 1, "a seat", taken)
	_, err = gateway.EvalSha(ctx, seat)
	expect(status.Code(err) == codes.Unknown && codeWord(err) == "FULL", "a second seat", err)

	// A script that never ends, until its client loses patience. What it wrote is undone.
	impatient, giveUp := context.WithTimeout(ctx, 200*time.Millisecond)
	defer giveUp()
	endless := []byte("redis.call('SET', KEYS[1], 'half done') while true do end")
	_, err = gateway.Eval(impatient, &v1.EvalRequest{Script: endless, Keys: words("job")})
	expect(status.Code(err) == codes.DeadlineExceeded, "an endless script", err)
	job, err := gateway.Execute(ctx, &v1.ExecuteRequest{Args: words("GET", "job")})
	if err != nil {
		return err
	}
	expect(job.Reply.GetNull() != nil, "what the script wrote", job)

	// Batches of commands. Errors are replies, and the stream goes on.
	pipeline, err := gateway.Pipeline(ctx)
	if err != nil {
		return err
	}
	for id := range uint64(3) {
		commands := []*v1.Command{{Args: words("INCR", "n")}, {Args: words("NOPE")}}
		if err = pipeline.Send(&v1.PipelineRequest{Id: id, Commands: commands}); err != nil {
			return err
		}
	}
	if err = pipeline.CloseSend(); err != nil {
		return err
	}
	for id := uint64(0); ; id++ {
		batch, err := pipeline.Recv()
		if err == io.EOF {
			expect(id == 3, "the last batch", id)
			break
		}
		if err != nil {
			return err
		}
		expect(batch.Id == id && batch.Replies[0].GetInteger() > 0, "a batch", batch)
		expect(batch.Replies[1].GetError().GetCode() == "ERR", "a batch", batch)
	}

	// What happens to scripts, while it happens.
	events, err := gateway.Watch(ctx, &v1.WatchRequest{})
	if err != nil {
		return err
	}
	first, err := events.Recv()
	if err != nil {
		return err
	}
	expect(first.GetListening() != nil, "the first event", first)
	if _, err = gateway.Eval(ctx, &v1.EvalRequest{Script: []byte("return 1")}); err != nil {
		return err
	}
	// Somebody else's script may end in between.
	for {
		event, err := events.Recv()
		if err != nil {
			return err
		}
		if began := event.GetBegan(); began != nil {
			expect(began.Mode == "atomic", "a script that began", began)
			return nil
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: example HOST:PORT")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the Go client is content")
}
