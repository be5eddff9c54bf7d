// SPDX-License-Identifier: Apache-2.0
//
// HTTPS over RDMA: Boost.Beast and OpenSSL, as they are, on a stream. The server makes a
// certificate, writes it to a file for the client to trust, and answers until its client is done.
// Try: verbena run ./https --certificate x.pem & verbena run ./https --certificate x.pem 127.0.0.1

#include <fmt/format.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <CLI/CLI.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "examples/meeting.h"
#include "verbena/asio_stream.h"
#include "verbena/stream_listener.h"

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace verbena::verbs;
using asio::use_awaitable;
using secure_stream = asio::ssl::stream<asio_stream>;

struct Options {
  std::string host{};
  std::uint16_t port = 18515;
  std::string certificate{};
  std::string target = "/";
};

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* what) const {
    free(what);
  }
};

/// A key, and a certificate for it that it signs itself, good for a day.
Result<> make_certificate(asio::ssl::context& tls, const std::string& file) {
  const std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Free<X509_free>> made(X509_new());
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 24L * 60 * 60);
  X509_NAME* const name = X509_get_subject_name(made.get());
  const std::string common = "verbena";
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common.data()), -1, -1, 0);
  X509_set_issuer_name(made.get(), name);
  X509_set_pubkey(made.get(), key.get());
  if (X509_sign(made.get(), key.get(), EVP_sha256()) == 0 ||
      SSL_CTX_use_PrivateKey(tls.native_handle(), key.get()) != 1 ||
      SSL_CTX_use_certificate(tls.native_handle(), made.get()) != 1)
    return fail(std::errc::io_error, "https", "OpenSSL makes no certificate");
  const std::unique_ptr<std::FILE, Free<std::fclose>> to(std::fopen(file.c_str(), "w"));
  if (to == nullptr || PEM_write_X509(to.get(), made.get()) != 1)
    return fail(std::errc::io_error, "https", "cannot write " + file);
  return {};
}

asio::awaitable<void> serve(secure_stream& peer) {
  co_await peer.async_handshake(asio::ssl::stream_base::server, use_awaitable);
  boost::beast::flat_buffer buffer;
  for (;;) {
    http::request<http::string_body> request;
    boost::system::error_code error;
    co_await http::async_read(peer, buffer, request, asio::redirect_error(use_awaitable, error));
    if (error) break;  // the client is done
    http::response<http::string_body> response(http::status::ok, request.version());
    response.set(http::field::content_type, "text/plain");
    response.body() = fmt::format("you asked for {} over RDMA\n", std::string(request.target()));
    response.prepare_payload();
    co_await http::async_write(peer, response, use_awaitable);
  }
}

asio::awaitable<void> get(secure_stream& peer, std::string target) {
  co_await peer.async_handshake(asio::ssl::stream_base::client, use_awaitable);
  http::request<http::empty_body> request(http::verb::get, target, 11);
  request.set(http::field::host, "verbena");
  co_await http::async_write(peer, request, use_awaitable);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  co_await http::async_read(peer, buffer, response, use_awaitable);
  fmt::print("{} {}", response.result_int(), response.body());
  boost::system::error_code ignored;  // the server is not waited for
  co_await peer.async_shutdown(asio::redirect_error(use_awaitable, ignored));
}

Result<> run(const Options& wanted) {
  const bool is_server = wanted.host.empty();
  asio::io_context io;
  asio::ssl::context tls(asio::ssl::context::tls);
  std::optional<stream> made;
  if (is_server) {
    VERBENA_TRY(make_certificate(tls, wanted.certificate));
    listener at = VERBENA_TRY(listener::bind(fmt::format("0.0.0.0:{}", wanted.port)));
    made.emplace(VERBENA_TRY(at.accept()));
  } else {
    made.emplace(VERBENA_TRY(stream::connect(fmt::format("{}:{}", wanted.host, wanted.port))));
    tls.load_verify_file(wanted.certificate);
    tls.set_verify_mode(asio::ssl::verify_peer);
  }
  secure_stream peer(asio_stream(io.get_executor(), std::move(*made)), tls);
  auto done =
      asio::co_spawn(io, is_server ? serve(peer) : get(peer, wanted.target), asio::use_future);
  io.run();
  done.get();  // throws what the coroutine has thrown
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("HTTPS over RDMA.");
  Options wanted;
  app.add_option("HOST", wanted.host, "The server's address; without it this is the server");
  app.add_option("-p,--port", wanted.port, "The rdma_cm port to meet at")->capture_default_str();
  app.add_option("-c,--certificate", wanted.certificate,
                 "Where the server writes its certificate, which the client trusts")
      ->required();
  app.add_option("-t,--target", wanted.target, "What the client gets")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return examples::finish(run(wanted));
  } catch (const std::exception& error) {
    fmt::print(stderr, "https: {}\n", error.what());
    return 1;
  }
}
