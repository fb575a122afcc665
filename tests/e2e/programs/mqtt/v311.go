package main

import (
	"fmt"
	"net"
	"net/url"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const timeout = 20 * time.Second

type client311 struct {
	name       string
	client     mqtt.Client
	connection net.Conn
}

func (c *client311) Connect(request Request) error {
	options := mqtt.NewClientOptions().
		AddBroker(fmt.Sprintf("tcp://127.0.0.1:%d", request.Port)).
		SetClientID(request.Client).
		SetProtocolVersion(4).
		SetCleanSession(request.IsClean).
		SetAutoReconnect(false).
		SetDefaultPublishHandler(c.onMessage).
		SetConnectionLostHandler(func(mqtt.Client, error) { report(Event{Client: c.name, IsGone: true}) }).
		SetCustomOpenConnectionFn(func(address *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
			connection, err := net.DialTimeout("tcp", address.Host, timeout)
			c.connection = connection
			return connection, err
		})
	if will := request.Will; will != nil {
		options.SetBinaryWill(will.Topic, will.Payload, will.QoS, will.Retain)
	}
	c.client = mqtt.NewClient(options)
	return wait(c.client.Connect())
}

func (c *client311) onMessage(_ mqtt.Client, message mqtt.Message) {
	report(Event{Client: c.name, Message: &Message{
		message.Topic(), message.Payload(), message.Qos(), message.Retained(),
	}})
}

func (c *client311) Subscribe(filter string, qos byte) error {
	return wait(c.client.Subscribe(filter, qos, nil))
}

func (c *client311) Publish(message Message) func() error {
	token := c.client.Publish(message.Topic, message.QoS, message.Retain, message.Payload)
	return func() error { return wait(token) }
}

func (c *client311) Disconnect() error {
	c.client.Disconnect(100)
	return nil
}

// Cut ends both directions: the library ignores the end of a connection that is closed on this side.
func (c *client311) Cut() error {
	connection := c.connection.(*net.TCPConn)
	if err := connection.CloseWrite(); err != nil {
		return err
	}
	return connection.CloseRead()
}

func wait(token mqtt.Token) error {
	if !token.WaitTimeout(timeout) {
		return fmt.Errorf("no acknowledgement within %s", timeout)
	}
	return token.Error()
}
