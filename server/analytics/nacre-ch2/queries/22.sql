SELECT substr(c_state, 1, 1) AS country, COUNT(*) AS numcust, SUM(c_balance) AS totacctbal FROM customer
WHERE substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7')
  AND c_balance > (SELECT AVG(c_balance) FROM customer
      WHERE c_balance > 0 AND substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7'))
  AND NOT EXISTS (SELECT 1 FROM orders WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
    AND o_entry_d BETWEEN '2013-12-01 00:00:00' AND '2013-12-31 00:00:00')
GROUP BY 1 ORDER BY 1
