// Go over MQTT: subscribe, publish at QoS 1, print what arrives.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

func wait(token mqtt.Token) {
	if !token.WaitTimeout(10 * time.Second) {
		log.Fatal("no answer within 10 s")
	}
	if err := token.Error(); err != nil {
		log.Fatal(err)
	}
}

func main() {
	options := mqtt.NewClientOptions().AddBroker("tcp://" + os.Args[1]).SetClientID("go-example")
	client := mqtt.NewClient(options)
	wait(client.Connect())
	arrived := make(chan mqtt.Message, 1)
	wait(client.Subscribe("hello/go", 1, func(_ mqtt.Client, message mqtt.Message) { arrived <- message }))
	wait(client.Publish("hello/go", 1, false, "first light"))
	select {
	case message := <-arrived:
		fmt.Println(message.Topic(), string(message.Payload()))
	case <-time.After(10 * time.Second):
		log.Fatal("nothing arrived within 10 s")
	}
	client.Disconnect(250)
}
