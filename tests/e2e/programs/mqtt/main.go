// MQTT clients in Go, driven by lines of JSON: paho.mqtt.golang speaks 3.1.1, paho.golang speaks 5.
//
// A request has a number, a client and a verb; its response has the same number. Messages and lost
// connections are reported as they come, without a number.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

type Message struct {
	Topic   string `json:"topic"`
	Payload []byte `json:"payload"`
	QoS     byte   `json:"qos"`
	Retain  bool   `json:"retain"`
}

type Request struct {
	Number  int      `json:"number"`
	Client  string   `json:"client"`
	Verb    string   `json:"verb"`
	Port    int      `json:"port"`
	Version int      `json:"version"`
	IsClean bool     `json:"clean"`
	ExpiryS uint32   `json:"expiry_s"`
	Will    *Message `json:"will"`
	Filter  string   `json:"filter"`
	QoS     byte     `json:"qos"`
	Message Message  `json:"message"`
}

type Event struct {
	Number  int      `json:"number,omitempty"`
	Client  string   `json:"client"`
	Error   string   `json:"error,omitempty"`
	Message *Message `json:"message,omitempty"`
	IsGone  bool     `json:"gone,omitempty"`
}

type Client interface {
	Connect(Request) error
	Subscribe(filter string, qos byte) error
	// Publish sends a message, and returns a function that waits for its acknowledgement.
	Publish(Message) func() error
	Disconnect() error
	Cut() error
}

var (
	writing sync.Mutex
	output  = json.NewEncoder(os.Stdout)
)

func report(event Event) {
	writing.Lock()
	defer writing.Unlock()
	if err := output.Encode(event); err != nil {
		panic(err)
	}
}

func respond(request Request, err error) {
	event := Event{Number: request.Number, Client: request.Client}
	if err != nil {
		event.Error = err.Error()
	}
	report(event)
}

// work handles the requests of one client in order. Only acknowledgements are waited for beside them.
func work(client Client, requests <-chan Request) {
	for each := range requests {
		request := each
		switch request.Verb {
		case "connect":
			respond(request, client.Connect(request))
		case "subscribe":
			respond(request, client.Subscribe(request.Filter, request.QoS))
		case "publish":
			wait := client.Publish(request.Message)
			go func() { respond(request, wait()) }()
		case "disconnect":
			respond(request, client.Disconnect())
		case "cut":
			respond(request, client.Cut())
		default:
			respond(request, fmt.Errorf("no such verb: %s", request.Verb))
		}
	}
}

func main() {
	clients := map[string]chan Request{}
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var request Request
		if err := input.Decode(&request); err != nil {
			return
		}
		if request.Verb == "connect" {
			clients[request.Client] = make(chan Request, 1000)
			go work(newClient(request), clients[request.Client])
		}
		clients[request.Client] <- request
	}
}

func newClient(request Request) Client {
	if request.Version == 5 {
		return &client5{name: request.Client}
	}
	return &client311{name: request.Client}
}
