// Package kcptest runs a real server, kubectl and Helm for tests, because what users depend on is the behaviour of the
// programs and not of the packages in them.
//
// A test package starts one server in TestMain and gives every test logical clusters of its own:
//
//	var server *kcptest.Server
//
//	func TestMain(m *testing.M) { kcptest.Main(m, &server) }
//
//	func TestSomething(t *testing.T) {
//		cluster := server.Cluster(t)
//		cluster.Kubectl(t, "create", "namespace", "demo")
//	}
package kcptest
