package storage

import (
	"context"
	"errors"
	"net"
	"testing"
)

// accepting returns the address of a listener that accepts connections.
func accepting(t *testing.T) net.Addr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Close()
		}
	}()
	return listener.Addr()
}

// On a busy machine, each attempt to connect ended while it waited for DNS, until the server had been without etcd for 50 seconds.
func TestAMemberIsReconnectedWhileDNSDoesNotAnswer(t *testing.T) {
	address := accepting(t).String()
	c := newContact(1, unexpected(t))
	c.reached["etcd.example.com:2379"] = address
	c.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	connection, err := c.dial(t.Context(), "etcd.example.com:2379")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if got := connection.RemoteAddr().String(); got != address {
		t.Errorf("it is connected to %s, not to %s", got, address)
	}
}

func TestAnErrorOfDNSIsNotReplacedByAFormerAddress(t *testing.T) {
	c := newContact(1, unexpected(t))
	c.reached["etcd.example.com:2379"] = accepting(t).String()
	c.resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("refused")
	}}
	if connection, err := c.dial(t.Context(), "etcd.example.com:2379"); err == nil {
		connection.Close()
		t.Error("a member is reached, though its name is not resolved")
	}
}

func TestTheAddressOfAConnectionIsRemembered(t *testing.T) {
	_, port, err := net.SplitHostPort(accepting(t).String())
	if err != nil {
		t.Fatal(err)
	}
	c := newContact(1, unexpected(t))
	connection, err := c.dial(t.Context(), "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if got := c.reached["localhost:"+port]; got != connection.RemoteAddr().String() {
		t.Errorf("%q is remembered, and the connection is to %s", got, connection.RemoteAddr())
	}
}
