package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

type client5 struct {
	name       string
	client     *paho.Client
	connection net.Conn
	gone       sync.Once
}

func (c *client5) Connect(request Request) error {
	connection, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", request.Port), timeout)
	if err != nil {
		return err
	}
	c.connection = connection
	c.client = paho.NewClient(paho.ClientConfig{
		Conn:               packets.NewThreadSafeConn(connection),
		Router:             paho.NewSingleHandlerRouter(c.onMessage),
		PacketTimeout:      timeout,
		OnClientError:      func(error) { c.onGone() },
		OnServerDisconnect: func(*paho.Disconnect) { c.onGone() },
	})
	connect := &paho.Connect{
		ClientID:   request.Client,
		CleanStart: request.IsClean,
		KeepAlive:  60,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &request.ExpiryS, RequestProblemInfo: true},
	}
	if will := request.Will; will != nil {
		connect.WillMessage = &paho.WillMessage{
			Topic: will.Topic, Payload: will.Payload, QoS: will.QoS, Retain: will.Retain,
		}
	}
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err = c.client.Connect(within, connect)
	return err
}

func (c *client5) onGone() {
	c.gone.Do(func() { report(Event{Client: c.name, IsGone: true}) })
}

func (c *client5) onMessage(message *paho.Publish) {
	report(Event{Client: c.name, Message: &Message{
		message.Topic, message.Payload, message.QoS, message.Retain,
	}})
}

func (c *client5) Subscribe(filter string, qos byte) error {
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := c.client.Subscribe(within, &paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}},
	})
	return err
}

// Publish waits for the acknowledgement at once: the library has no other way.
func (c *client5) Publish(message Message) func() error {
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := c.client.Publish(within, &paho.Publish{
		Topic: message.Topic, Payload: message.Payload, QoS: message.QoS, Retain: message.Retain,
	})
	return func() error { return err }
}

func (c *client5) Disconnect() error {
	return c.client.Disconnect(&paho.Disconnect{ReasonCode: 0})
}

func (c *client5) Cut() error {
	return c.connection.Close()
}
